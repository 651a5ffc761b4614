"use strict";
document.documentElement.classList.add("js");

for (const table of document.querySelectorAll("table[data-sort]")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, column) => {
    const cell = row.cells[column], given = cell.dataset.v;
    if (given === undefined) return cell.textContent.trim().toLowerCase();
    return given === "" ? -Infinity : Number(given);
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    const link = head.querySelector("a");
    button.textContent = link ? "⇅" : head.textContent;
    if (link) {
      button.setAttribute("aria-label", "Sort by " + link.textContent);
      head.querySelector("span").append(button);
    } else {
      head.replaceChildren(button);
    }
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => {
        const x = value(a, column), y = value(b, column);
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      table.tBodies[0].append(...rows);
    });
  });
}

const search = document.querySelector("#find");
if (search) {
  const steps = [...document.querySelectorAll(".step")];
  const texts = steps.map((step) => step.textContent.toLowerCase());
  const kinds = [...document.querySelectorAll("input[name=kind]")];
  const show = () => {
    const word = search.value.toLowerCase();
    const off = new Set(kinds.filter((kind) => !kind.checked).map((kind) => kind.value));
    let found = 0;
    steps.forEach((step, at) => {
      const hit = !off.has(step.dataset.kind) && (!word || texts[at].includes(word));
      step.hidden = !hit;
      if (hit) found += 1;
      if (hit && word) for (const fold of step.querySelectorAll("details")) fold.open = true;
    });
    document.querySelector("#found").textContent = found + " of " + steps.length + " steps";
  };
  search.addEventListener("input", show);
  for (const kind of kinds) kind.addEventListener("change", show);
  show();
}

const follow = () => {
  const name = location.hash.slice(1);
  const target = name && document.getElementById(name);
  if (target) {
    for (let place = target; place; place = place.parentElement) if (place.tagName === "DETAILS") place.open = true;
    const fold = target.querySelector("details");
    if (fold) fold.open = true;
    target.hidden = false;
    target.scrollIntoView();
    return;
  }
  const step = /^s(\d+)$/.exec(name), ranges = document.querySelector("#ranges");
  if (step && ranges) {
    const last = ranges.dataset.pages.trim().split(" ").map(Number);
    const page = last.findIndex((line) => Number(step[1]) <= line);
    const here = Number(/t(\d+)\.html$/.exec(location.pathname)?.[1]);
    if (page >= 0 && page + 1 !== here) location.replace("t" + (page + 1) + ".html#" + name);
  }
};
addEventListener("hashchange", follow);
follow();
