const items = JSON.parse(localStorage.getItem("items") ?? "[]");
const list = document.getElementById("items");
const field = document.getElementById("text");

function show() {
  localStorage.setItem("items", JSON.stringify(items));
  list.replaceChildren(...items.map(row));
  const left = items.filter((item) => !item.done).length;
  document.getElementById("left").textContent = items.length ? `${left} of ${items.length} left` : "Nothing to do.";
}

function row(item) {
  const line = document.createElement("li");
  const label = document.createElement("label");
  const box = document.createElement("input");
  const text = document.createElement("span");
  box.type = "checkbox";
  box.checked = item.done;
  text.textContent = item.text;
  text.className = item.done ? "done" : "";
  box.onchange = () => {
    item.done = box.checked;
    show();
  };
  label.append(box, text);
  line.append(label);
  return line;
}

document.getElementById("add").onsubmit = (event) => {
  event.preventDefault();
  items.push({ text: field.value, done: false });
  field.value = "";
  show();
};

show();
console.log("to-do list ready");
