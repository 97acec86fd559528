set -u
export LC_ALL=C
IFS='' # patterns of files are expanded and never split
tab=$(printf '\t')
root=${KILTER_ROOT:-}
dir=$root/dev
[ ! -d "$root/run" ] || dir=$root/run
kept=$dir/kilter-$name.originals # gone with the boot, as the values are
failed=0
mode=''

# The value that a file shows: FORMAT WORD FILE.
now() {
  text=$(cat "$3" 2>/dev/null) || return 1
  case $1 in
    bracketed) case $text in *\[*) text=${text#*\[} && text=${text%%\]*} ;; esac ;; #@bracketed
    parenthesised) case $text in *\(*) text=${text#*\(} && text=${text%%\)*} ;; esac ;; #@parenthesised
    feature) case " $text " in *" $2 "*) text=1 ;; *" NO_$2 "*) text=0 ;; *) return 1 ;; esac ;; #@feature
    yes-no) case $text in [Yy1]*) text=1 ;; *) text=0 ;; esac ;; #@yes-no
    hex) text=$((text)) ;; #@hex
    cpu0) case $text in 0:*) text=${text#0:} && text=${text%%[!0-9]*} ;; *) return 1 ;; esac ;; #@cpu0
    mask) text=$(printf '%s\n' "$text" | sed -e 's/,//g' -e 's/^0*\(.\)/\1/') ;; #@mask
    spaced) text=$(printf '%s\n' "$text" | sed "s/[ $tab][ $tab]*/ /g") ;; #@spaced
  esac
  printf '%s\n' "$text"
}

# Writes a value as the file takes it: FORMAT WORD FILE VALUE.
give() {
  out=$4
  case $1:$4 in
    feature:1) out=$2 ;; #@feature
    feature:0) out=NO_$2 ;; #@feature
    yes-no:1) out=Y ;; #@yes-no
    yes-no:0) out=N ;; #@yes-no
    cpu0:*) out=0:$4 ;; #@cpu0
    mask:*) out=$(printf '%s\n' "$4" | sed -e ':a' -e 's/^\([0-9a-f]*[0-9a-f]\)\([0-9a-f]\{8\}\)/\1,\2/' -e 'ta') ;; #@mask
  esac
  { printf '%s\n' "$out" >"$3"; } 2>/dev/null
}

# Every file of the first pattern that this kernel has: FORMAT WORD VALUE PATTERN...
# Without a value it is only remembered, because another write moves it.
put() {
  format=$1 word=$2 wanted=$3 hit=''
  shift 3
  for pattern; do
    for file in $root$pattern; do
      case $pattern:$file in
        *'*'*:*/block/loop* | *'*'*:*/block/ram* | *'*'*:*/block/zram* | *'*'*:*/block/dm-*) continue ;;
        *'*'*:*/block/md* | *'*'*:*/block/nbd*) continue ;;
      esac
      [ -f "$file" ] || continue
      value=$(now "$format" "$word" "$file") || continue
      hit=1
      case $mode in
        remember) remember ;;
        *) [ ! "$wanted" ] || change ;;
      esac
    done
    [ ! "$hit" ] || return 0
  done
  [ "$mode:${wanted:+set}" != last:set ] || echo "skipped  $word: this kernel has no $1"
}

# Files that the last write resets: remembered too. #@also
also() { #@also
  for reset; do put plain moved '' "$reset"; done #@also
} #@also
 #@also
# Notes the value that was there, before anything is written.
remember() {
  [ "$word" != moved ] || known=$tab$file$tab
  [ "$word" = moved ] || known=$tab$word$tab$file$tab
  grep -qF "$known" "$kept" 2>/dev/null && return
  printf '%s\n' "$format$tab$word$tab$file$tab$value" >>"$kept" || exit 1
}

# Writes the value, reads it back, and tells at the end what came of it.
change() {
  aim=$wanted
  case $aim in *:* | highest | lowest) aim=$(wish) || aim='' ;; esac #@wish
  if [ ! "$aim" ]; then #@wish
    [ "$mode" != last ] || echo "skipped  $file: $wanted is not offered" #@wish
    return #@wish
  fi #@wish
  [ "$value" != "$aim" ] || return 0
  give "$format" "$word" "$file" "$aim"
  taken=$?
  [ "$mode" = last ] || return 0
  after=$(now "$format" "$word" "$file")
  if [ "$after" != "$aim" ] && [ "$taken" != 0 ]; then
    echo "refused  $file: $aim (it is $after)"
    failed=1
  elif [ "$after" != "$aim" ]; then
    echo "rounded  $file: $after instead of $aim"
  fi
}

# Puts everything back in the order of writing, twice: one value may have to wait for another.
revert() {
  [ -f "$kept" ] || { echo "nothing to put back" && exit 0; }
  for mode in first last; do
    while read -r line; do
      value=${line##*"$tab"} && line=${line%"$tab"*}
      file=${line##*"$tab"} && line=${line%"$tab"*}
      word=${line#*"$tab"} && format=${line%%"$tab"*}
      case $mode:$file:$value in # of a pair that zero each other the other one comes first
        first:*/dirty_*bytes:0 | first:*/dirty_*ratio:0) continue ;;
      esac
      [ -f "$file" ] || continue
      [ "$(now "$format" "$word" "$file")" != "$value" ] || continue
      give "$format" "$word" "$file" "$value"
      case $mode:$(now "$format" "$word" "$file") in
        first:* | "last:$value") continue ;;
      esac
      echo "failed   $file: could not be put back to $value"
      failed=1
    done <"$kept"
  done
  again
  [ "$failed" = 1 ] || rm -f "$kept"
  exit "$failed"
}
