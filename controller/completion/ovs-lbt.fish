# Completion of ovs-lbt for fish. The command itself knows the words: ovs-lbt __complete WORDS.
function __ovs_lbt_complete
    set -l typed (commandline --cut-at-cursor --tokenize --current-process)
    set -l current (commandline --cut-at-cursor --current-token)
    for line in ($typed[1] __complete $typed[2..-1] "$current" 2>/dev/null)
        if string match --quiet ':files*' -- $line
            __fish_complete_path "$current"
        else
            # Fish takes what follows the first tab for the description.
            string trim --right --chars \t -- $line
        end
    end
end
complete --command ovs-lbt --no-files --arguments '(__ovs_lbt_complete)'
