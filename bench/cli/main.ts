/** The command line as a checkout has it: with what the package leaves out. */
import { addCommand, run, runOn } from '../../src/cli/main.js';

addCommand('bench', { load: () => import('./command.js') });
addCommand('simulate cluster', {
  summary: 'run gateways and replicas on a clock',
  load: () => import('../cluster/command.js'),
});

export { run, runOn };
