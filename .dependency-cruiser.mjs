/**
 * The import directions of docs/architecture.md. A room may import its own files, rooms of its own floor, and everything below.
 * Tests, benchmarks and testing/ folders are exempt from the floors: a kernel's test may load a model.
 *
 * The parser is swc: dependency-cruiser reads TypeScript through the compiler's JavaScript API, which TypeScript 7 no longer has.
 * swc doesn't tell type imports from others, so cycles (types may refer to each other) are oxlint's business: import/no-cycle.
 */
const floors = [
  ['src/base'],
  ['src/gpu'],
  ['shaders', 'src/distributed', 'src/placement', 'src/arrangement', 'src/loader', 'src/tokenizer'],
  ['src/model'],
  ['src/engine', 'src/simulate', 'src/cluster'],
  ['src/index\\.ts', 'src/planning'],
  ['src/app', 'src/cli', 'src/server'],
  ['bench'],
];
/** Where benches are asked for: a command and three pages. */
const asksForBenches = '^src/(cli/main|app/host|app/host_protocol|app/tools/(bench/\\w+|check_page))\\.ts$';
const tests = '(\\.(test|bench)\\.ts$|/testing/|^e2e/)';
const room = (rooms) => `^(${rooms.join('|')})(/|$)`;

const upwards = floors.slice(0, -1).map((rooms, floor) => ({
  name: `no-upward-import-from-${rooms[0].replace(/.*\//, '').replace(/\W+/g, '-')}`,
  comment: `Imports go down: bench -> app, cli, server -> index -> engine, simulate, cluster -> model -> shaders, distributed, placement, arrangement, loader, tokenizer -> gpu -> base.`,
  severity: 'error',
  from: { path: room(rooms), pathNot: `${tests}|${asksForBenches}` },
  to: { path: room(floors.slice(floor + 1).flat()) },
}));

export default {
  forbidden: [
    ...upwards,
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
        'Placement, the scheduler, routing and the simulator run without a GPU, so that they can be searched, simulated and tested alone.',
      severity: 'error',
      from: { path: '^src/(placement/|arrangement/|simulate/|engine/scheduler|cluster/routing)', pathNot: tests },
      to: { path: '^(src/gpu/|shaders/)', reachable: true },
    },
    {
      name: 'node-modules-only-where-node-runs',
      comment:
        "Code that runs in a page can't import Node's modules; put it into a file named node*.ts that is imported dynamically.",
      severity: 'error',
      from: {
        path: '^(src|shaders|bench)/',
        pathNot: `${tests}|(^|/)node[^/]*\\.ts$|^(src/cli|src/server|bench/(cli|pack|peer_packages))/`,
      },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'faces-stay-apart',
      comment: 'Page code knows nothing of the command line and the server.',
      severity: 'error',
      from: { path: '^src/app/' },
      to: { path: '^src/(cli|server)/' },
    },
    { name: 'no-unresolvable', severity: 'error', from: {}, to: { couldNotResolve: true } },
    {
      name: 'no-tests-in-product',
      severity: 'error',
      from: { path: '^(src|shaders|bench)/', pathNot: tests },
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
