let count = 0;
const shown = document.getElementById("count");

function add(step) {
  count += step;
  shown.textContent = String(count);
}

document.getElementById("more").onclick = () => add(1);
document.getElementById("less").onclick = () => add(-1);
console.log("counter ready");
