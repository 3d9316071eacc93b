/** `npm start`: set-up, then the embedded model answers a question in Chrome, and the demo page stays served. See demo.ts. */
import { ensureChrome, ensurePackages } from './setup.mjs';

ensurePackages();
process.env.CHROME_PATH = ensureChrome();
await import('./run_typescript.mjs');
const { start } = await import('./demo.ts');
await start(process.argv.slice(2));
