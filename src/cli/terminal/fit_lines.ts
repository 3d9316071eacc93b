import { wrapped } from './help.js';

/**
 * What is told in so many columns: lines of prose are cut at spaces, and a table whose lines are longer goes on below itself, each
 * part with the first column.
 */
export function fitLines(text: string, columns = Infinity): string {
  if (!text.split('\n').some((line) => line.length > columns)) return text;
  const fitted: string[] = [];
  let table: string[] = [];
  const endTable = (): void => {
    if (table.length > 1) fitted.push(...fitTable(table, columns));
    else fitted.push(...table.flatMap((line) => wrapped(line, columns)));
    table = [];
  };
  for (const line of text.split('\n')) {
    if (/\S {2,}\S/.test(line)) table.push(line);
    else {
      endTable();
      fitted.push(...wrapped(line, columns));
    }
  }
  endTable();
  return fitted.join('\n');
}

/** Rows of one table, as `alignedTable` writes them. */
function fitTable(rows: readonly string[], columns: number): string[] {
  const [first, ...rest] = columnsOf(rows);
  if (!first || rest.length === 0 || rows.every((row) => row.length <= columns)) return [...rows];
  const parts: (readonly string[])[][] = [];
  let width = Infinity;
  for (const column of rest) {
    width += 2 + column[0]!.length;
    if (width > columns) {
      parts.push([first]);
      width = first[0]!.length + 2 + column[0]!.length;
    }
    parts.at(-1)!.push(column);
  }
  return parts.flatMap((part, index) => [
    ...(index > 0 ? [''] : []),
    ...rows.map((_, row) =>
      part
        .map((column) => column[row])
        .join('  ')
        .trimEnd(),
    ),
  ]);
}

/** Columns stand apart where all rows have two blanks: each cell as wide as its column. */
function columnsOf(rows: readonly string[]): string[][] {
  const width = Math.max(...rows.map((row) => row.length));
  const padded = rows.map((row) => row.padEnd(width));
  const ink = Array.from({ length: width }, (_, at) => (padded.some((row) => row[at] !== ' ') ? '#' : ' ')).join('');
  return [...ink.matchAll(/(?:^ *)?#+(?: #+)*/g)].map(({ index, 0: { length } }) =>
    padded.map((row) => row.slice(index, index + length)),
  );
}
