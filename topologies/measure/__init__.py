"""Why a bench's figures are what they are: measurements that take one of its causes by itself."""
