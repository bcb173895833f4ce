// Tables that are sorted by their headers, with the keyboard as well as with a mouse.

import { made, put } from "./words.js";

/**
 * A table in `element`.  `columns` are {key, name, text, kind, show}: `show(row)` is what
 * a cell says, `row[key]` what it is sorted by, `kind` its classes.  `sorted(key, order)`
 * is called when somebody asks for another order; without it the rows are sorted here.
 */
export class Table {
  constructor(element, columns, { caption, sort = null, order = "down", sorted = null, empty = "nothing yet" }) {
    this.columns = columns;
    this.sort = sort;
    this.order = order;
    this.sorted = sorted;
    this.empty = empty;
    this.rows = [];
    element.append(made("caption", caption, "unseen"));
    const head = element.createTHead().insertRow();
    for (const column of columns) head.append(this.header(column));
    this.head = head;
    this.body = element.createTBody();
    this.mark();
  }

  header(column) {
    const cell = made("th", undefined, /text/.test(column.kind) ? "text" : "");
    cell.scope = "col";
    if (!this.sort) {
      cell.textContent = column.name;
      return cell;
    }
    const button = made("button", column.name);
    button.type = "button";
    button.addEventListener("click", () => this.by(column.key));
    cell.append(button);
    return cell;
  }

  by(key) {
    this.order = this.sort === key && this.order === "down" ? "up" : "down";
    this.sort = key;
    this.mark();
    if (this.sorted) this.sorted(key, this.order);
    else this.show(this.rows);
  }

  mark() {
    this.columns.forEach((column, index) => {
      const cell = this.head.cells[index];
      if (this.sort === column.key) cell.setAttribute("aria-sort", this.order === "down" ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  show(rows) {
    this.rows = rows;
    const shown = this.sort && !this.sorted ? [...rows].sort((one, other) => this.compare(one, other)) : rows;
    while (this.body.rows.length > Math.max(1, shown.length)) this.body.deleteRow(-1);
    if (!shown.length) {
      this.body.replaceChildren();
      const cell = this.body.insertRow().insertCell();
      cell.colSpan = this.columns.length;
      cell.className = "text soft";
      cell.textContent = this.empty;
      return;
    }
    if (this.body.rows[0]?.cells.length !== this.columns.length) this.body.replaceChildren();
    shown.forEach((row, index) => this.fill(this.body.rows[index] || this.insert(), row));
  }

  insert() {
    const row = this.body.insertRow();
    for (const column of this.columns) row.insertCell().className = column.kind || "";
    return row;
  }

  fill(cells, row) {
    this.columns.forEach((column, index) => {
      const cell = cells.cells[index], text = String(column.show(row));
      put(cell, text);
      if (/long/.test(column.kind)) cell.title = text;
    });
  }

  compare(one, other) {
    const [a, b] = [one[this.sort] ?? "", other[this.sort] ?? ""];
    const less = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
    return this.order === "down" ? -less : less;
  }
}

/** Whether any text of a row has `wanted` in it. */
export function finds(row, wanted) {
  const text = wanted.trim().toLowerCase();
  return !text || Object.values(row).some(value => String(value ?? "").toLowerCase().includes(text));
}
