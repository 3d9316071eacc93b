import { make } from './dom.js';

/** The pages, in the order in which they are offered. */
const PAGES = [
  ['chat.html', 'Chat'],
  ['index.html', 'Ranks'],
  ['bench.html', 'Bench'],
  ['check.html', 'Check'],
  ['arrange.html', 'Arrange'],
  ['simulate.html', 'Simulate'],
] as const;

/** `<site-nav>`: the links between the pages. */
class SiteNav extends HTMLElement {
  connectedCallback(): void {
    const here = location.pathname.split('/').at(-1) || 'index.html';
    const nav = make('nav', 'site');
    nav.ariaLabel = 'Pages';
    for (const [page, name] of PAGES) {
      const link = make('a', '', name);
      link.href = page;
      if (page === here) link.ariaCurrent = 'page';
      nav.append(link);
    }
    this.replaceChildren(nav);
  }
}

customElements.define('site-nav', SiteNav);
