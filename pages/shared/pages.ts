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
  /** What people come for: pages of one want stand together. None: the page that the site opens with. */
  readonly want?: Want;
}

/** The mark, as the address of a picture. */
export const MARK =
  "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'><rect width='3' height='8' rx='1' fill='%233b6fd4'/><rect x='5' width='3' height='8' rx='1' fill='%23d4773b'/></svg>";

/** What the navigation offers, in this order; each leads to the first of its pages. */
const WANTS = ['Chat', 'Docs', 'Several GPUs', 'Bench', 'Play'] as const;
type Want = (typeof WANTS)[number];

/** The pages, in the order in which they are offered. The first is the one that the site opens with. */
export const PAGES: readonly SitePage[] = [
  { address: 'index.html', name: 'splitkv', about: 'What it is, and a model to try' },
  {
    address: 'chat.html',
    name: 'Chat',
    about: 'Conversations with any model, which this browser keeps',
    want: 'Chat',
  },
  {
    address: 'gallery.html',
    name: 'Play',
    about: 'A playground, and whole programs to copy, for pages and for Node',
    want: 'Play',
  },
  {
    address: 'ranks.html',
    name: 'Ranks',
    about: 'One model on several GPUs: who holds what, live',
    want: 'Several GPUs',
  },
  {
    address: 'rank.html',
    name: 'Join',
    about: "This tab's GPU as a rank of a cluster, for models on several machines",
    want: 'Several GPUs',
  },
  {
    address: 'arrange.html',
    name: 'Arrange',
    about: 'Heads with unequal caches, put on ranks',
    want: 'Several GPUs',
  },
  {
    address: 'simulate.html',
    name: 'Simulate',
    about: "The scheduler's policies on a clock, with any numbers",
    want: 'Several GPUs',
  },
  {
    address: 'bench.html',
    name: 'Benchmarks',
    about: 'The benchmarks in your own browser, with results to share',
    want: 'Bench',
  },
  { address: 'check.html', name: 'Check', about: 'Is this GPU right, and how fast? A line to send', want: 'Bench' },
  { address: 'gpus.html', name: 'Results', about: 'What GPUs have measured, side by side', want: 'Bench' },
  {
    address: 'api/index.html',
    name: 'API and guides',
    about: 'Every function, option and type of the package, and its guides',
    want: 'Docs',
  },
];

/**
 * The navigation, as HTML: what people want, and below it the pages of the want that is open where it has several.
 * @param open the address of the page that shows it; undefined: none of PAGES
 * @param href what leads to an address from there
 */
export function navigation(open: string | undefined, href = (address: string): string => address): string {
  const [first] = PAGES;
  const want = PAGES.find(({ address }) => address === open)?.want;
  const near = PAGES.filter((page) => want !== undefined && page.want === want);
  const link = (address: string, name: string, current: string | boolean, rest = ''): string =>
    `<a${rest} href="${href(address)}"${current ? ` aria-current="${current}"` : ''}>${name}</a>`;
  const here = (address: string): string | boolean => address === open && 'page';
  const wants = WANTS.map((each) => {
    const { address } = PAGES.find((page) => page.want === each)!;
    return link(address, each, near.length > 1 ? each === want : here(address));
  });
  const brand = link(first!.address, first!.name, here(first!.address), ' class="brand"');
  const pages = near.map(({ address, name }) => link(address, name, here(address)));
  return `<nav class="site" aria-label="Pages"><div>${brand}${wants.join('')}</div>${
    near.length > 1 ? `<div class="near" role="group" aria-label="${want}">${pages.join('')}</div>` : ''
  }</nav>`;
}
