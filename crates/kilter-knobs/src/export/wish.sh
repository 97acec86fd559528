
# A value that depends on what the file, or the list beside it, offers; fails if nothing will do.
wish() {
  frequencies=scaling_available_frequencies #@list
  case $file in
    */scaling_governor) list=$(cat "${file%/*}/scaling_available_governors" 2>/dev/null) ;; #@first
    */hispeed_freq) list=$(cat "${file%/*}/../$frequencies" 2>/dev/null) ;; #@list
    */input_boost_freq) list=$(cat "$root/sys/devices/system/cpu/cpufreq/policy0/$frequencies" 2>/dev/null) ;; #@list
    *) list=$(sed 's/[][()]//g' "$file") ;;
  esac
  argument=${aim#*:}
  best='' least='' #@list
  case $aim in
    at-least:*) [ "$value" -lt "$argument" ] || argument=$value ;; #@relative
    at-most:*) [ "$value" -gt "$argument" ] || argument=$value ;; #@relative
    first:*) #@first
      IFS=, #@first
      for word in $argument; do #@first
        case " $list " in *" $word "*) echo "$word" && return ;; esac #@first
      done #@first
      return 1 #@first
      ;; #@first
    *) #@list
      IFS=' ' #@list
      for number in $list; do #@list
        case $aim in #@list
          highest) distance=-$number ;; #@list
          lowest) distance=$number ;; #@list
          *) distance=$((number - argument)) && distance=${distance#-} ;; #@list
        esac #@list
        if [ ! "$best" ] || [ "$distance" -le "$least" ]; then best=$number least=$distance; fi #@list
      done #@list
      argument=$best #@list
      ;; #@list
  esac
  [ "$argument" ] && echo "$argument"
}
