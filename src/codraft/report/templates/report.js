/* Draws the figures in the reader's light or dark scheme, and tells where a number comes from.
   Colours in the figures are names ("@ink", "@drafter0/0.2") of the stylesheet's variables. */
(function () {
  "use strict";
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var store = document.getElementById("figures");
  var figures = store ? JSON.parse(store.textContent) : {};
  var chosen = {};
  var drawn = {};
  var FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

  function colour(token) {
    if (typeof token !== "string" || token[0] !== "@") return token;
    var parts = token.slice(1).split("/");
    var value = getComputedStyle(root).getPropertyValue("--" + parts[0]).trim();
    if (parts.length === 1) return value;
    var bits = parseInt(value.slice(1), 16);
    return "rgba(" + [bits >> 16, (bits >> 8) & 255, bits & 255, parts[1]].join(",") + ")";
  }

  /* Only under keys that hold colours: a text that begins with "@" is somebody's text. */
  function paint(value, isColour) {
    if (Array.isArray(value)) return value.map(function (item) { return paint(item, isColour); });
    if (value && typeof value === "object") {
      var copy = {};
      Object.keys(value).forEach(function (key) { copy[key] = paint(value[key], /color/i.test(key)); });
      return copy;
    }
    return isColour ? colour(value) : value;
  }

  function axis(own) {
    var base = {
      fixedrange: true, zeroline: false, automargin: true, ticks: "outside", ticklen: 4, gridcolor: "@grid",
      linecolor: "@line", tickcolor: "@line", tickfont: { color: "@muted", size: 12 }, nticks: 8
    };
    var made = Object.assign(base, own || {});
    if (made.title) made.title = Object.assign({ font: { color: "@muted", size: 13 }, standoff: 10 }, made.title);
    return made;
  }

  function layout(own, box) {
    var made = Object.assign({
      autosize: true, dragmode: false, showlegend: false, hovermode: "closest", hoverdistance: 30,
      paper_bgcolor: "@card", plot_bgcolor: "@card", margin: { l: 36, r: 14, t: 10, b: 44 },
      font: { family: FONT, size: 12, color: "@ink" }
    }, own);
    made.xaxis = axis(made.xaxis);
    made.yaxis = axis(made.yaxis);
    /* Plotly measures its box later than the printer does. */
    if (root.classList.contains("printing")) { made.width = box.clientWidth; made.height = box.clientHeight; }
    return paint(made, false);
  }

  /* Numbers in cells that are too narrow for them would run into each other. */
  function fit(trace, box) {
    if (trace.type !== "heatmap") return trace;
    var longest = Math.max.apply(null, trace.y.map(function (label) { return label.length; }));
    var room = (box.clientWidth - 40 - 6.5 * longest) / trace.x.length;
    trace.textfont = { color: colour("@ink"), size: room < 36 ? 10 : 13 };
    if (room < 25) delete trace.texttemplate;
    return trace;
  }

  function draw(panel, figure) {
    var box = document.getElementById(panel.id);
    var variant = panel.variants[chosen[figure] || 0];
    var data = variant.data.map(function (trace) { return fit(paint(trace, false), box); });
    var config = {
      responsive: true, displaylogo: false, displayModeBar: window.matchMedia("(hover: hover)").matches ? "hover" : false,
      modeBarButtons: [["toImage"]], toImageButtonOptions: { filename: panel.id, scale: 2 }
    };
    window.Plotly.react(box, data, layout(variant.layout, box), config).then(function () {
      if (drawn[panel.id]) return;
      drawn[panel.id] = figure;
      tooltip(box);
    });
  }

  function each(visit) {
    Object.keys(figures).forEach(function (figure) {
      figures[figure].panels.forEach(function (panel) { visit(panel, figure); });
    });
  }

  function redraw() {
    each(function (panel, figure) { if (drawn[panel.id]) draw(panel, figure); });
  }

  /* A tip of our own: it wraps, stays inside its panel, and shows text as text. */
  function tooltip(box) {
    var tip = document.createElement("div");
    tip.className = "tip";
    tip.hidden = true;
    box.parentNode.appendChild(tip);
    function show(event) {
      var point = event.points[0], lines = point && point.customdata;
      if (!lines || !lines.length || !point.bbox) return;
      tip.textContent = "";
      lines.filter(Boolean).forEach(function (line, i, all) {
        var row = document.createElement(i === 0 ? "strong" : i === all.length - 1 ? "small" : "span");
        row.textContent = line;
        tip.appendChild(row);
      });
      tip.hidden = false;
      var middle = (point.bbox.x0 + point.bbox.x1) / 2;
      var left = Math.max(0, Math.min(middle - tip.offsetWidth / 2, box.clientWidth - tip.offsetWidth));
      var above = box.offsetTop + point.bbox.y0 - tip.offsetHeight - 10;
      tip.style.left = box.offsetLeft + left + "px";
      tip.style.top = (above > -box.offsetTop - 60 ? above : box.offsetTop + point.bbox.y1 + 12) + "px";
    }
    box.on("plotly_hover", show);
    box.on("plotly_click", show);
    box.on("plotly_unhover", function () { tip.hidden = true; });
  }

  function choose(select) {
    var figure = select.dataset.figure, index = Number(select.value);
    chosen[figure] = index;
    var note = document.querySelector('[data-note="' + figure + '"]');
    if (note) note.textContent = figures[figure].notes[index] || "";
    figures[figure].panels.forEach(function (panel) { if (drawn[panel.id]) draw(panel, figure); });
  }

  /* Touch screens have no hover: a tap on a number shows its title. */
  function sources() {
    var toast = document.getElementById("toast"), timer = 0;
    document.addEventListener("click", function (event) {
      var from = event.target.closest(".n[title], td[title], th[title], tr[title], .strip[title]");
      toast.hidden = !from;
      if (!from) return;
      toast.textContent = from.getAttribute("title");
      clearTimeout(timer);
      timer = setTimeout(function () { toast.hidden = true; }, 8000);
    });
  }

  function start() {
    sources();
    if (!window.Plotly) return;
    document.querySelectorAll("select[data-figure]").forEach(function (select) {
      select.addEventListener("change", function () { choose(select); });
      choose(select);
    });
    var waiting = {};
    var watcher = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        watcher.unobserve(entry.target);
        waiting[entry.target.id]();
      });
    }, { rootMargin: "800px 0px" });
    each(function (panel, figure) {
      waiting[panel.id] = function () { draw(panel, figure); };
      watcher.observe(document.getElementById(panel.id));
    });
    dark.addEventListener("change", redraw);
    /* Paper is white and narrow, whatever the screen is. */
    window.addEventListener("beforeprint", function () {
      root.classList.add("printing");
      each(draw);
    });
    window.addEventListener("afterprint", function () {
      root.classList.remove("printing");
      redraw();
    });
  }

  start();
})();
