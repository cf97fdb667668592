#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
cat > /app/service.sh <<'END'
#!/bin/bash
file=/app/service.pid
runs() { [ -f $file ] && kill -0 "$(cat $file)" 2>/dev/null; }
case $1 in
start)
    if runs; then echo running; exit; fi
    sleep 1000 >/dev/null 2>&1 &
    echo $! > $file
    echo started ;;
status) if runs; then echo running; else echo stopped; fi ;;
stop)
    if runs; then kill "$(cat $file)"; fi
    rm -f $file
    echo stopped ;;
esac
END
chmod +x /app/service.sh
