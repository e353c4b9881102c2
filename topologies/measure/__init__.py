"""The causes of benches' figures: measurements that isolate one cause at a time."""
