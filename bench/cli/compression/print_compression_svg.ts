/** Prints the plot of documents that `splitkv bench --suite compression` wrote: npx tsx bench/cli/compression/print_compression_svg.ts A.json B.json */
import { readFileSync } from 'node:fs';
import type { CompressionResult } from './compression_suite.js';
import { compressionSvg } from './compression_svg.js';

const documents = process.argv
  .slice(2)
  .map((path) => JSON.parse(readFileSync(path, 'utf8')) as { readonly results: readonly CompressionResult[] });
process.stdout.write(compressionSvg(documents.flatMap(({ results }) => results)));
