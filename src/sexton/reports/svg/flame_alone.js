// The same in a file of its own: the controls stand in the picture's free head.
(function () {
  "use strict";
  const svg = document.documentElement;
  const outside = document.createElementNS("http://www.w3.org/2000/svg", "foreignObject");
  const inside = document.createElementNS("http://www.w3.org/1999/xhtml", "div");
  inside.className = "bar";
  outside.setAttribute("x", "10");
  outside.setAttribute("y", svg.dataset.bar);
  outside.setAttribute("width", "100%");
  outside.setAttribute("height", "30");
  outside.appendChild(inside);
  svg.appendChild(outside);
  const hint = svg.querySelector(".hint");
  if (hint) hint.remove();
  sextonFlame(svg, inside);
})();
