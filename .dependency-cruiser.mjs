/**
 * The import directions of docs/architecture.md. A room may import its own files and the rooms of the floors below it, for types,
 * too: rooms of one floor know nothing of each other, so that no circle of rooms can be. Tests, benchmarks and testing/ folders are
 * exempt: a kernel's test may load a model.
 *
 * The parser is swc: dependency-cruiser reads TypeScript through the compiler's JavaScript API, which TypeScript 7 no longer has.
 * swc doesn't tell type imports from others, so cycles inside a room (types may refer to each other) are oxlint's business:
 * import/no-cycle.
 */

/** From the ground up. Every folder of src, and every one of src/engine, stands on one; scripts/layers.test.ts checks that. */
export const floors = [
  ['src/base'],
  ['src/gpu', 'src/loader', 'src/chat_formats', 'src/arrangement', 'src/images'],
  ['shaders', 'src/distributed', 'src/placement', 'src/tokenizer', 'src/grammar', 'src/sound'],
  ['src/model'],
  ['src/engine/scheduler'],
  ['src/engine/contracts'],
  ['src/engine/measure', 'src/engine/files'],
  ['src/engine/tuning', 'src/engine/cache'],
  ['src/engine/ranks'],
  ['src/engine/workers'],
  ['src/engine/planning'],
  ['src/engine/serving'],
  ['src/engine/prefill'],
  ['src/engine/faces'],
  ['src/cluster'],
  ['src/planning', 'src/entry.ts'],
  ['src/index.ts'],
  ['src/app', 'src/server'],
  ['src/cli'],
  ['bench'],
  ['pages'],
];
const tests = '(\\.(test|bench)\\.ts$|/testing/|^e2e/)';
const pathsOf = (rooms) => `^(${rooms.map((room) => room.replaceAll('.', '\\.')).join('|')})(/|$)`;

const upwards = floors.flatMap((rooms, floor) =>
  rooms.map((own) => ({
    name: `no-upward-import-from-${own.replace(/^src\//, '').replace(/\W+/g, '-')}`,
    comment: `A room imports from the floors below it: ${floors.map((names) => names.join(', ')).join(' < ')}`,
    severity: 'error',
    from: { path: pathsOf([own]), pathNot: tests },
    to: {
      path: pathsOf(
        floors
          .slice(floor)
          .flat()
          .filter((room) => room !== own),
      ),
    },
  })),
);

export default {
  forbidden: [
    ...upwards,
    {
      name: 'stands-on-a-floor',
      comment:
        'A folder of src or of src/engine that is on no floor: add it to the list above, as low as its imports allow.',
      severity: 'error',
      from: { path: '^src/', pathNot: `${tests}|${pathsOf(floors.flat())}` },
      to: {},
    },
    {
      name: 'shaders-stand-alone',
      comment: 'A kernel needs the GPU layer and other shaders, nothing else.',
      severity: 'error',
      from: { path: '^shaders/', pathNot: tests },
      to: { path: '^src/', pathNot: '^src/(gpu|base)/' },
    },
    {
      name: 'pure-code-needs-no-gpu',
      comment:
        'Placement, the scheduler and routing run without a GPU, so that they can be searched, simulated and tested alone.',
      severity: 'error',
      from: { path: '^src/(placement/|arrangement/|engine/scheduler|cluster/routing)', pathNot: tests },
      to: { path: '^(src/gpu/|shaders/)', reachable: true },
    },
    {
      name: 'node-modules-only-where-node-runs',
      comment:
        "Code that runs in a page can't import Node's modules; put it into a file named node*.ts that is imported dynamically.",
      severity: 'error',
      from: {
        path: '^(src|pages|shaders|bench)/',
        pathNot: `${tests}|(^|/)node[^/]*\\.ts$|^(src/cli|src/server|bench/(cli|pack|peer_packages))/`,
      },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'faces-stay-apart',
      comment: 'Page code knows nothing of the command line and the server.',
      severity: 'error',
      from: { path: '^(src/app|pages)/' },
      to: { path: '^src/(cli|server)/' },
    },
    { name: 'no-unresolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'no-tests-in-product',
      severity: 'error',
      from: { path: '^(src|pages|shaders|bench)/', pathNot: tests },
      to: { path: '\\.(test|bench)\\.ts$' },
    },
  ],
  options: {
    parser: 'swc',
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default', 'types'] },
  },
};
