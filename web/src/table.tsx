/** A table of any length: only the rows that are seen exist. */

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren, JSX } from "preact";
import { useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

export interface Column<T> {
  title: string;
  /** A part of `grid-template-columns`. */
  width: string;
  cell: (row: T) => ComponentChildren;
  /** What to sort by; without it the column cannot be sorted. */
  by?: (row: T) => string | number;
  /** Left out on narrow screens. */
  wide?: boolean;
}

interface TableProps<T> {
  label: string;
  rows: T[];
  columns: Column<T>[];
  id: (row: T) => string;
  rowHeight?: number;
  selected?: Set<string>;
  select?: (ids: Set<string>) => void;
}

export function Table<T>(props: TableProps<T>): JSX.Element {
  const { label, rows, columns, id, rowHeight = 38, selected, select } = props;
  const [order, sort] = useState<{ at: number; down: boolean } | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const sorted = order ? inOrder(rows, columns[order.at]!, order.down) : rows;
  const shown = useVirtual(sorted.length, scroller, rowHeight);
  const widths = (some: Column<T>[]) => [...(select ? ["2rem"] : []), ...some.map((one) => one.width)].join(" ");
  const template = { "--columns": widths(columns), "--narrow": widths(columns.filter((one) => !one.wide)) };
  const all = sorted.length > 0 && selected?.size === sorted.length;
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={sorted.length + 1} style={template}>
      <div role="rowgroup">
        <div class="table-row head" role="row" aria-rowindex={1}>
          {select && (
            <span role="columnheader">
              <input
                type="checkbox"
                aria-label="Select all rows"
                checked={all}
                onChange={() => select(all ? new Set() : new Set(sorted.map(id)))}
              />
            </span>
          )}
          {columns.map((column, at) => (
            <Head
              key={column.title}
              column={column}
              down={order?.at === at ? order.down : null}
              sort={() => sort({ at, down: order?.at === at ? !order.down : false })}
            />
          ))}
        </div>
      </div>
      <div class="table-body" ref={scroller} role="rowgroup" tabIndex={0} aria-label={`Rows of ${label}`}>
        <div role="presentation" class="table-space" style={{ height: `${sorted.length * rowHeight}px` }}>
          {shown.map((at) => {
            const row = sorted[at]!;
            const key = id(row);
            return (
              <div
                class={`table-row ${selected?.has(key) ? "selected" : ""}`}
                role="row"
                aria-rowindex={at + 2}
                key={key}
                style={{ transform: `translateY(${at * rowHeight}px)`, height: `${rowHeight}px` }}
              >
                {select && (
                  <span role="cell">
                    <input
                      type="checkbox"
                      aria-label={`Select ${key}`}
                      checked={selected!.has(key)}
                      onChange={() => select(toggled(selected!, key))}
                    />
                  </span>
                )}
                {columns.map((column) => (
                  <span role="cell" key={column.title} class={column.wide ? "wide" : ""}>
                    {column.cell(row)}
                  </span>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

function Head<T>(props: { column: Column<T>; down: boolean | null; sort: () => void }): JSX.Element {
  const { column, down, sort } = props;
  const direction = down === null ? undefined : down ? "descending" : "ascending";
  return (
    <span role="columnheader" class={column.wide ? "wide" : ""} aria-sort={direction}>
      {column.by ? (
        <button type="button" class="sort" onClick={sort}>
          {column.title}
          <span aria-hidden="true">{down === null ? "" : down ? " ↓" : " ↑"}</span>
        </button>
      ) : (
        column.title
      )}
    </span>
  );
}

function inOrder<T>(rows: T[], column: Column<T>, down: boolean): T[] {
  const by = column.by!;
  const compare = (a: string | number, b: string | number) => (a < b ? -1 : a > b ? 1 : 0);
  return [...rows].sort((a, b) => (down ? -1 : 1) * compare(by(a), by(b)));
}

function toggled(ids: Set<string>, id: string): Set<string> {
  const changed = new Set(ids);
  if (!changed.delete(id)) changed.add(id);
  return changed;
}

/** The numbers of the rows that are seen, and of some above and below. */
function useVirtual(count: number, scroller: { current: HTMLDivElement | null }, rowHeight: number): number[] {
  const [, draw] = useReducer((round: number) => round + 1, 0);
  const kept = useRef<Virtualizer<HTMLDivElement, Element> | null>(null);
  const options = {
    count,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowHeight,
    overscan: 10,
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    onChange: () => draw(0),
    initialRect: { width: 800, height: 800 },
  };
  const virtual = (kept.current ??= new Virtualizer<HTMLDivElement, Element>(options));
  virtual.setOptions(options);
  useLayoutEffect(() => virtual._didMount(), []);
  useLayoutEffect(() => virtual._willUpdate());
  return virtual.getVirtualItems().map((item) => item.index);
}
