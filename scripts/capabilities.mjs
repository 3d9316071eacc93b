/** `npm run capabilities`: writes docs/capabilities.md from the table of what goes together (src/placement/check/capabilities.ts). */
import { writeFileSync } from 'node:fs';
import { ensurePackages } from './setup.mjs';

ensurePackages();
await import('./run_typescript.mjs');
const { capabilityPage } = await import('../src/placement/testing/capability_page.ts');
writeFileSync(new URL('../docs/capabilities.md', import.meta.url), await capabilityPage());
