(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const hideTip = () => { tip.hidden = true; };
  const showTip = (event, text) => {
    tip.textContent = text;
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY + 14 + tip.offsetHeight > innerHeight;
    tip.style.left = Math.max(8, left) + "px";
    tip.style.top = (above ? event.clientY - tip.offsetHeight - 10 : event.clientY + 14) + "px";
  };

  // Tables: a click on a heading sorts by it; a second click turns the order round; dashes stay last.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    return cell.classList.contains("none") ? null : cell.textContent.trim();
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  };
  const sortBy = (table, heading) => {
    const column = heading.cellIndex;
    const first = heading.classList.contains("name") ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    table.querySelectorAll("th[aria-sort]").forEach((th) => th.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    const body = table.tBodies[0];
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].sort((a, b) => compare(keyOf(a, column), keyOf(b, column), sign));
    body.append(...rows);
  };
  document.querySelectorAll("table.sortable thead button").forEach((button) => {
    button.addEventListener("click", () => sortBy(button.closest("table"), button.closest("th")));
  });

  // Leaderboards: boxes hide the rows of a form.
  document.querySelectorAll("fieldset.filter").forEach((filter) => {
    const rows = filter.parentElement.querySelectorAll("table.board tbody tr");
    filter.addEventListener("change", (event) => {
      rows.forEach((row) => {
        if (row.dataset.form === event.target.dataset.form) row.hidden = !event.target.checked;
      });
    });
  });

  // Boxes that scroll sideways: their right edge fades while there is more behind it.
  document.querySelectorAll(".scroll, .sheet").forEach((box) => {
    const mark = () => box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    mark();
    box.addEventListener("scroll", mark, { passive: true });
    new ResizeObserver(mark).observe(box);
  });

  // Lines: a cross-hair with every visible line's value at the nearest point; the legend hides and shows lines.
  const nearest = (values, wanted) => {
    let best = 0;
    values.forEach((value, i) => { if (Math.abs(value - wanted) < Math.abs(values[best] - wanted)) best = i; });
    return best;
  };
  document.querySelectorAll("figure.lines").forEach((figure) => {
    const plot = figure.querySelector(".plot");
    const data = JSON.parse(plot.querySelector(".data").textContent);
    const series = [...plot.querySelectorAll("g.series")];
    const cross = plot.querySelector(".cross");
    const away = () => { cross.hidden = true; hideTip(); };
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const wanted = data.x[0] + share * (data.x[1] - data.x[0]);
      const shown = data.lines.filter((_, i) => !series[i].classList.contains("off"));
      const rows = shown.map((line) => {
        const i = nearest(line.x, wanted);
        return { at: line.x[i], label: line.label, y: line.y[i] };
      }).filter((row) => row.y !== null).sort((a, b) => b.y - a.y);
      if (!rows.length) return away();
      cross.hidden = false;
      cross.style.left = 100 * (rows[0].at - data.x[0]) / (data.x[1] - data.x[0]) + "%";
      const at = data.names ? data.names[rows[0].at] : rows[0].at.toLocaleString("en");
      showTip(event, at + "\n" + rows.map((r) => r.label + "  " + r.y.toFixed(2)).join("\n"));
    });
    plot.addEventListener("pointerleave", away);
    figure.querySelectorAll(".legend button").forEach((button) => {
      button.addEventListener("click", () => {
        const off = series[Number(button.dataset.line)].classList.toggle("off");
        button.setAttribute("aria-pressed", String(!off));
      });
    });
  });

  // Heat maps: what is under the pointer.
  document.querySelectorAll(".heat-plot").forEach((plot) => {
    const data = JSON.parse(plot.querySelector(".data").textContent);
    const size = data.labels.length;
    const name = (i) => data.labels[i] + (data.groups ? " (" + data.groups[i] + ")" : "");
    plot.addEventListener("pointermove", (event) => {
      const box = plot.getBoundingClientRect();
      const place = (at, start, length) => Math.min(size - 1, Math.max(0, Math.floor(size * (at - start) / length)));
      const row = place(event.clientY, box.top, box.height);
      const column = place(event.clientX, box.left, box.width);
      const value = data.values[row][column];
      showTip(event, name(row) + " ← " + name(column) + "\n" + (value === null ? "–" : value));
    });
    plot.addEventListener("pointerleave", hideTip);
  });
  document.documentElement.dataset.ready = "true";
})();
