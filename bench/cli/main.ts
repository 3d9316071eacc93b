/** The command line as a checkout has it: with what the package says is run here. */
import { addCommand, run, runOn } from '../../src/cli/main.js';

addCommand('bench', () => import('./command.js'));
addCommand('simulate adp', () => import('./simulate/simulate_adp.js'));
addCommand('simulate cluster', () => import('./simulate/simulate_cluster.js'));

export { run, runOn };
