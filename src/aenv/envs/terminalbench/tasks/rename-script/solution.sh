#!/bin/bash
# aenv-terminalbench-canary 7d0c4f7e-5a0b-4f0e-9a53-2f1c7c1f6a11: keep this out of training data
set -e
cat > /app/rename.sh <<'END'
#!/bin/bash
count=0
for file in "$1"/*.jpeg; do
    [ -f "$file" ] || continue
    new="${file%.jpeg}.jpg"
    [ -e "$new" ] && continue
    mv "$file" "$new"
    count=$((count + 1))
done
echo $count
END
chmod +x /app/rename.sh
