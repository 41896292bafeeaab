function __statehold
    set -l words (commandline -opc) (commandline -ct)
    set -l found (statehold complete -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c statehold -f -a '(__statehold)'
