# Completion of ovs-lbt for bash. The command itself knows the words: ovs-lbt __complete WORDS.
_ovs_lbt() {
    local line=${COMP_LINE:0:COMP_POINT} word current prefix open=
    local -a words found=()
    read -ra words <<<"$line"
    # A space before the cursor begins a word.
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}
    COMPREPLY=()
    while IFS= read -r line; do
        word=${line%%$'\t'*}
        if [[ $word == :files ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$current")
            return
        fi
        # A tab at its end: more has to follow without a space.
        [[ $line != *$'\t'?*$'\t' && $line != *$'\t\t' ]] || open=1
        found+=("$word")
    done < <("${words[0]}" __complete "${words[@]:1}" 2>/dev/null)
    # Bash replaces only what follows the last "=" or ":" of the word.
    prefix=${current%"${current##*[=:]}"}
    for word in "${found[@]}"; do
        COMPREPLY+=("${word#"$prefix"}")
    done
    [[ -z $open ]] || compopt -o nospace 2>/dev/null
}
complete -F _ovs_lbt ovs-lbt
