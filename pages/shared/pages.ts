/**
 * Room: what several pages of the site share. pages.ts (here) is the list of pages, of which vite.config.ts
 * makes the navigation and heads; run_form.ts and worker_job.ts run a job of a page in a worker.
 */

/** A page of the site, as links name it. */
export interface SitePage {
  /** Relative to the site's root. */
  readonly address: string;
  readonly name: string;
  /** What is done there, in a line. */
  readonly about: string;
}

/** The pages, in the order in which they are offered. The first is the one that the site opens with. */
export const PAGES: readonly SitePage[] = [
  { address: 'index.html', name: 'splitkv', about: 'What it is, and a model to try' },
  { address: 'chat.html', name: 'Chat', about: 'Conversations with any model, which this browser keeps' },
  { address: 'gallery.html', name: 'Gallery', about: 'Whole programs to copy, for pages and for Node' },
  { address: 'ranks.html', name: 'Ranks', about: 'One model on several GPUs: who holds what, live' },
  {
    address: 'rank.html',
    name: 'Join',
    about: "This tab's GPU as a rank of a cluster, for models on several machines",
  },
  { address: 'bench.html', name: 'Bench', about: 'The benchmarks in your own browser, with results to share' },
  { address: 'check.html', name: 'Check', about: 'Is this GPU right, and how fast? A line to send' },
  { address: 'gpus.html', name: 'GPUs', about: 'What GPUs have measured, side by side' },
  { address: 'arrange.html', name: 'Arrange', about: 'Heads with unequal caches, put on ranks' },
  { address: 'simulate.html', name: 'Simulate', about: "The scheduler's policies on a clock, with any numbers" },
  { address: 'api/index.html', name: 'API', about: 'Every function, option and type of the package, and its guides' },
];
