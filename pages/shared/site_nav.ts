import { make } from '../../src/app/shared/dom.js';
import { PAGES } from './pages.js';

/** `<site-nav>`: the links between the pages. */
class SiteNav extends HTMLElement {
  connectedCallback(): void {
    const here = location.pathname.split('/').at(-1) || PAGES[0]!.address;
    const nav = make('nav', 'site');
    nav.ariaLabel = 'Pages';
    for (const [at, { address, name }] of PAGES.entries()) {
      const link = make('a', at === 0 ? 'brand' : '', name);
      link.href = address;
      if (address === here) link.ariaCurrent = 'page';
      nav.append(link);
    }
    this.replaceChildren(nav);
  }
}

customElements.define('site-nav', SiteNav);
