"use strict";
// What a pointer adds to the page: the numbers under it, and runs that hide. Without this script all curves are still there.
(() => {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const axis = () => (document.querySelector("input[name=axis]:checked")?.id ?? "x-steps").slice(2);
  const off = new Set();

  const element = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text !== undefined) made.textContent = text; // never as HTML: names are not to be trusted
    return made;
  };

  const time = (seconds) => {
    if (seconds < 90) return seconds.toFixed(1) + " s";
    const minutes = Math.round(seconds / 60);
    return minutes < 60 ? minutes + " min" : Math.floor(minutes / 60) + " h " + String(minutes % 60).padStart(2, "0") + " min";
  };
  const place = (name, value) =>
    name === "seconds" ? time(value) : Math.round(value).toLocaleString("en") + " " + name;
  const measured = (value, share) =>
    value === null ? "not finite"
      : share ? (100 * value).toFixed(1) + " %"
      : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en")
      : String(Number(value.toPrecision(4)));

  const nearest = (sorted, wanted) => {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low > 0 && wanted - sorted[low - 1] < sorted[low] - wanted ? low - 1 : low;
  };

  for (const plot of document.querySelectorAll(".plot[data-lines]")) {
    const area = plot.querySelector(".area");
    const lines = plot.dataset.lines.split(",").map((each) => each.split(":").map(Number));
    let cross, tip;

    const leave = () => { cross?.remove(); tip?.remove(); cross = tip = undefined; };
    const move = (event) => {
      const over = axis(), end = Number(plot.dataset[over]), box = area.getBoundingClientRect();
      if (!end) return leave();
      const part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1), wanted = part * end;
      if (!tip) {
        cross = area.appendChild(element("div", "cross"));
        tip = area.appendChild(element("div", "tip"));
      }
      tip.replaceChildren(element("div", "at", place(over, wanted)));
      for (const [key, color] of lines) {
        const line = numbers.lines[key], places = numbers.places[line.places];
        if (off.has(line.run) || !places[over]?.length) continue;
        const i = nearest(places[over], wanted);
        if (!line.held && Math.abs(places[over][i] - wanted) > 0.03 * end) continue; // the run ended before
        const row = tip.appendChild(element("div"));
        const kind = line.held ? line.name.replaceAll("_", " ") + " held out, step " + places.steps[i].toLocaleString("en") : "training";
        row.append(element("span", "c" + color, plot.closest("#compare") ? line.run_name + ", " + (line.held ? "held out" : "training") : kind));
        row.append(element("b", "", measured(line.values[i], plot.dataset.share === "1")));
      }
      for (const mark of area.querySelectorAll(".over-" + over + " .mark")) {
        const at = Number(mark.getAttribute("d").match(/\d+/)[0]) / 2000;
        if (Math.abs(at - part) < 0.012) tip.append(element("div", "at", mark.dataset.text));
      }
      cross.style.left = 100 * part + "%";
      tip.style.left = part < 0.5 ? `calc(${100 * part}% + 12px)` : "";
      tip.style.right = part < 0.5 ? "" : `calc(${100 * (1 - part)}% + 12px)`;
    };
    area.addEventListener("pointermove", move);
    area.addEventListener("pointerdown", move);
    area.addEventListener("pointerleave", leave);
  }

  for (const button of document.querySelectorAll("[data-toggle]")) {
    const own = button.dataset.toggle, curves = [...document.querySelectorAll("#compare [data-run]")];
    const point = (on) => curves.forEach((curve) => curve.classList.toggle("dim", on && curve.dataset.run !== own));
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      off[shown ? "delete" : "add"](Number(own));
      curves.filter((curve) => curve.dataset.run === own).forEach((curve) => curve.classList.toggle("off", !shown));
      point(false);
    });
    button.addEventListener("pointerenter", () => point(button.getAttribute("aria-pressed") === "true"));
    button.addEventListener("pointerleave", () => point(false));
  }
})();
