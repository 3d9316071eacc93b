/** Prints docs/arrangement.md's table: npx tsx src/arrangement/testing/print_utilisation_table.ts */
import { EXPECTED, LAYERS, utilisationTable } from './utilisation_table.js';

const PROFILES = 8;

for (const [i, row] of utilisationTable(PROFILES).entries()) {
  const { heads, ranks } = EXPECTED[i]!;
  console.log(`\n${heads} kv heads on ${ranks} ranks, ${PROFILES} profiles of ${LAYERS} layers\n`);
  const names = Object.keys(row);
  console.log(`| ${names.join(' | ')} |\n|${names.map(() => '---|').join('')}`);
  console.log(`| ${names.map((name) => row[name]!.toFixed(3)).join(' | ')} |`);
}
