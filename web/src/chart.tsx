/** Charts by uPlot, in the colours of the page. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Series {
  label: string;
  values: (number | null)[];
}

interface ChartProps {
  label: string;
  x: number[];
  series: Series[];
  /** Whether x are seconds since 1970. */
  time?: boolean;
  /** Bars, for parts of the range from 0 to 1. */
  bars?: boolean;
  /** Whether each value is a point, joined over what is missing, and the lines have their names. */
  points?: boolean;
  height?: number;
  say?: (value: number) => string;
}

const COLOURS = ["--accent", "--quiet", "--bad", "--good", "--warn"];

const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart(props: ChartProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const data = [props.x, ...props.series.map((one) => one.values)] as uPlot.AlignedData;
  const shape = `${props.series.map((one) => one.label).join()} ${props.bars}`;
  useEffect(() => {
    const element = box.current!; // kept: an observer may call once more when the page has gone
    const make = () => {
      chart.current?.destroy();
      const drawn = new uPlot(options(props, element.clientWidth), data);
      element.append(drawn.root);
      chart.current = drawn;
    };
    make();
    const sized = new ResizeObserver(() => {
      chart.current?.setSize({ width: element.clientWidth, height: props.height ?? 160 });
    });
    sized.observe(element);
    addEventListener("themechange", make);
    return () => {
      sized.disconnect();
      removeEventListener("themechange", make);
      chart.current?.destroy();
      chart.current = null;
    };
  }, [shape]);
  useEffect(() => chart.current?.setData(data), [props.x, props.series]);
  return (
    <>
      <div class="chart" ref={box} role="img" aria-label={props.label} style={{ height: `${props.height ?? 160}px` }} />
      {props.points && props.series.length > 1 && (
        <ul class="legend">
          {props.series.map((one, at) => (
            <li key={one.label} class={`of${COLOURS[at % COLOURS.length]!.slice(1)}`}>
              {one.label}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

/** Times of a day, or days where they are far apart. */
function clock(marks: number[]): string[] {
  const isLong = (marks.at(-1) ?? 0) - (marks[0] ?? 0) > 86_400;
  const local = (mark: number) => new Date(1000 * (mark - 60 * new Date(1000 * mark).getTimezoneOffset())).toISOString();
  const words = marks.map((mark) => (isLong ? local(mark).slice(5, 10) : local(mark).slice(11, 19)));
  return words.map((word, at) => (word === words[at - 1] ? "" : word)); // marks may be parts of a second apart
}

/** The first and the last value; the five minutes before a single one, which uPlot would show among years. */
function span(drawn: uPlot, first: number, last: number): [number, number] {
  const [x] = drawn.data;
  if (first < last) return [first, last];
  const end = x[0] ?? Date.now() / 1000;
  return [end - 300, end];
}

function options(props: ChartProps, width: number): uPlot.Options {
  const colours = COLOURS.map(css);
  const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  const say = props.say;
  return {
    width,
    height: props.height ?? 160,
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: props.time ?? false, range: props.bars ? [0, 1] : span }, y: { range: (_, __, top) => [0, (top || 1) * 1.1] } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, size: 30, ...(props.time ? { values: (_, marks) => clock(marks) } : {}) },
      { ...axis, size: 56, values: say ? (_, marks) => marks.map((mark) => say(mark)) : undefined },
    ],
    series: [
      {},
      ...props.series.map((one, at) => ({
        label: one.label,
        stroke: colours[at % colours.length],
        width: props.bars ? 0 : 1.5,
        fill: props.bars ? colours[at % colours.length] : undefined,
        points: props.points ? { show: true, size: 7, fill: colours[at % colours.length] } : { show: props.bars ? false : (plot: uPlot) => plot.data[0].length < 3 },
        spanGaps: props.points,
        paths: props.bars ? uPlot.paths.bars!({ size: [0.85, 60] }) : undefined,
      })),
    ],
  };
}
