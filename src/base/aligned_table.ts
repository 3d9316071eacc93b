/** Rows under a heading, aligned: the first `textColumns` to the left, the others, numbers, to the right. */
export function alignedTable(rows: readonly (readonly string[])[], textColumns: number): string {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, i) => Math.max(...rows.map((row) => (row[i] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((text, i) => (i < textColumns ? text.padEnd(widths[i] ?? 0) : text.padStart(widths[i] ?? 0)))
      .join('  ')
      .trimEnd();
  return `${rows.map(line).join('\n')}\n`;
}
