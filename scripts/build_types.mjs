/** The package's declarations: one file an entry, rolled up, so that those who use it see no file of ours that isn't meant for them. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { root } from './setup.mjs';

/** Writes the declarations of each entry of the package into `folder`. */
export function buildTypes(folder) {
  const parts = join(folder, 'types');
  mkdirSync(parts, { recursive: true });
  const tsc = [
    join(root, 'node_modules/typescript/bin/tsc'),
    '-p',
    join(root, 'tsconfig.types.json'),
    '--outDir',
    parts,
  ];
  if (spawnSync(process.execPath, tsc, { stdio: 'inherit' }).status !== 0)
    throw new Error('writing declarations failed');
  const project = join(parts, 'tsconfig.json');
  const compilerOptions = {
    target: 'ES2023',
    module: 'ESNext',
    moduleResolution: 'Bundler',
    skipLibCheck: true,
    types: [],
  };
  writeFileSync(project, JSON.stringify({ compilerOptions, include: [] }));
  const entries = ['src/index.d.ts', 'src/app/chat/index.d.ts', 'src/planning/index.d.ts'];
  const [main, chat, planning] = rollUp(
    project,
    entries.map((file) => join(parts, file)),
  );
  const frameworks = readFileSync(join(root, 'src/app/chat/frameworks.d.ts'), 'utf8').replace(/^import .*\n/gm, '');
  // A component's element is the one of splitkv/chat, not another class of the same looks.
  const react = readFileSync(join(parts, 'src/app/react/index.d.ts'), 'utf8').replaceAll(
    "'../chat/index.js'",
    "'splitkv/chat'",
  );
  // Of what takes a model, which is the library's own.
  const faces = { prompt_api: ['types', 'index'], ai_sdk: ['index'], offline: ['index'] };
  for (const [face, files] of Object.entries(faces)) {
    const declared = files
      .map((file) => readFileSync(join(parts, `src/app/${face}/${file}.d.ts`), 'utf8'))
      .join('\n')
      .replaceAll(/^(import|export)[^;]*?from '\.\/[^']*';\n/gm, '')
      .replaceAll("'../../index.js'", "'splitkv'");
    writeFileSync(join(folder, `splitkv-${face}.d.ts`), declared);
  }
  writeFileSync(join(folder, 'splitkv.d.ts'), main);
  writeFileSync(join(folder, 'splitkv-planning.d.ts'), planning);
  writeFileSync(
    join(folder, 'splitkv-chat.d.ts'),
    `${chat.replace(/export \{\};\s*$/, '')}${frameworks}\nexport {};\n`,
  );
  writeFileSync(join(folder, 'splitkv-react.d.ts'), react);
  rmSync(parts, { recursive: true });
}

function rollUp(project, files) {
  const { generateDtsBundle } = createRequire(import.meta.url)('dts-bundle-generator');
  return generateDtsBundle(
    files.map((filePath) => ({
      filePath,
      // Of the element, whose tag is known to all who import it.
      output: { inlineDeclareGlobals: filePath.includes('chat'), exportReferencedTypes: false, noBanner: true },
    })),
    { preferredConfigPath: project },
  );
}
