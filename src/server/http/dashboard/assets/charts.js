// Charts of the overview, drawn by uPlot from the columns that the page has. A table beside them has the same figures.

import { clock as clockOf, length, texts } from "./app.js";

const charts = new Map();
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axes(ink, line, values) {
  const common = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  return [{ ...common, grid: { show: false }, values: (_, splits) => splits.map(clock) }, { ...common, size: 48, ...values }];
}

const clock = (seconds) => clockOf(seconds * 1000).slice(11, 16);

/** A measured time, as the pages of the server write it: `4 ms`, `1.25 s`, `5 min 14 s`. */
export const took = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${Math.round(ms / 10) / 100} s` : length(ms));

/** Labels of the axis of times, in milliseconds. */
const MARKS = [1, 10, 100, 1000, 10000, 60000, 600000, 3600000, 36000000, 86400000, 864000000];

/** The end of an axis that shows `high`. */
const end = (high) => MARKS.find((mark) => mark >= Math.max(high ?? 0, 100)) ?? MARKS.at(-1);

/** Percentiles, on a logarithmic scale: 0 ms is drawn as 1 ms. */
function lateness({ at, p50, p99, max, pull = [] }, names) {
  const least = (values) => values.map((value) => (value === null ? null : Math.max(value, 1)));
  const [ink, line] = [colour("--quiet"), colour("--line")];
  const series = (label, stroke, dash, width = 1.5) => ({ label, stroke, dash, width, points: { show: true, size: 5, fill: stroke }, value: (_, value) => (value == null ? "–" : took(value)) });
  // Only where workers take tasks.
  const workers = pull.some((value) => value !== null) ? [least(pull)] : [];
  return {
    data: [at, ...workers, least(max), least(p99), least(p50)],
    series: [{}, ...workers.map(() => series(names[8], ink, [6, 4], 1)), series(names[2], ink, [2, 3], 1), series(names[1], colour("--amber")), series(names[0], colour("--link"))],
    scales: { y: { distr: 3, range: (_, low, high) => [1, end(high)] } },
    // Without a filter of its own, uPlot leaves out labels of a logarithmic axis.
    axes: axes(ink, line, { splits: (plot) => MARKS.filter((mark) => mark <= plot.scales.y.max), filter: (_, splits) => splits, values: (_, splits) => splits.map(took) }),
  };
}

/** Starts by source, one on top of the other; failures as a line. */
function started({ at, event, nudge, sweep, direct, failed }, names) {
  const [ink, line] = [colour("--quiet"), colour("--line")];
  const sources = [[names[6], direct, "--line-strong"], [names[3], event, "--good"], [names[4], nudge, "--link"], [names[5], sweep, "--amber"]];
  let below = at.map(() => 0);
  const stacked = sources.map(([label, values, name]) => {
    below = values.map((value, index) => (value === null ? null : (below[index] ?? 0) + value));
    return { label, values, sum: below, name };
  });
  const rate = (value) => (value === null || value === undefined ? "–" : `${Math.round(value * 10) / 10}`);
  const area = ({ label, values, name }) => ({ label, stroke: colour(name), fill: `color-mix(in srgb, ${colour(name)} 35%, ${colour("--paper")})`, width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, __, ___, index) => rate(values[index]) });
  // The highest sum is drawn first, so that each covers the one above it.
  const drawn = stacked.reverse();
  return {
    data: [at, ...drawn.map(({ sum }) => sum), failed],
    series: [{}, ...drawn.map(area), { label: names[7], stroke: colour("--red"), width: 1.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false }, value: (_, value) => rate(value) }],
    scales: { y: { range: (_, __, high) => [0, Math.max(high * 1.1, 1)] } },
    axes: axes(ink, line, {}),
  };
}

const KINDS = { lateness, started };

function draw(place) {
  const { chart: kind, columns, names } = place.dataset;
  const key = columns + document.documentElement.dataset.theme + matchMedia("(prefers-color-scheme: dark)").matches;
  const known = charts.get(place);
  if (known?.key === key && known.width === place.clientWidth) return;
  known?.plot.destroy();
  const { data, ...options } = KINDS[kind](JSON.parse(columns), JSON.parse(names));
  const width = place.clientWidth;
  options.series[0] = { label: texts.time, value: (_, seconds) => (seconds == null ? "–" : clock(seconds)) };
  const plot = new uPlot({ width, height: 180, ...options, cursor: { drag: { x: false } }, legend: { live: true } }, data, place);
  charts.set(place, { key, plot, width });
}

function drawAll() {
  for (const [place, { plot }] of charts) {
    if (place.isConnected) continue;
    plot.destroy();
    charts.delete(place);
  }
  document.querySelectorAll("[data-chart]").forEach(draw);
}

document.addEventListener("loaded", drawAll);
addEventListener("resize", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
drawAll();
