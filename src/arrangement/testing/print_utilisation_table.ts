/** Prints docs/arrangement.md's tables: npx tsx src/arrangement/testing/print_utilisation_table.ts */
import { lognormalLoads } from './loads.js';
import { EXPECTED, LAYERS, PROMPT_COPIES, utilisationOfPrompts, utilisationTable } from './utilisation_table.js';

const PROFILES = 8;

for (const [i, row] of utilisationTable(PROFILES).entries()) {
  const { heads, ranks } = EXPECTED[i]!;
  console.log(`\n${heads} kv heads on ${ranks} ranks, ${PROFILES} profiles of ${LAYERS} layers\n`);
  const names = Object.keys(row);
  console.log(`| ${names.join(' | ')} |\n|${names.map(() => '---|').join('')}`);
  console.log(`| ${names.map((name) => row[name]!.toFixed(3)).join(' | ')} |`);
}

console.log('\nsingle prompts, whose heads vary by 20% and 40%: shares of the mean, then lanes shared anew\n');
for (const { heads, ranks, copies } of PROMPT_COPIES) {
  for (const most of copies) {
    const loads = lognormalLoads(1, LAYERS, heads);
    const cells = [0.2, 0.4].map((spread) => utilisationOfPrompts(loads, ranks, most, spread));
    const figures = cells.map(([planned, shared]) => `${planned.toFixed(3)}, ${shared.toFixed(3)}`);
    console.log(`| ${heads}/${ranks} | ${cells[0]![2].toFixed(1)} | ${figures.join(' | ')} |`);
  }
}
