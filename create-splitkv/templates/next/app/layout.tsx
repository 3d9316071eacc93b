import type { Metadata } from 'next';
import type { ReactNode } from 'react';
import './globals.css';

const ICON =
  "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 100 100'><text y='.9em' font-size='90'>💬</text></svg>";

export const metadata: Metadata = { title: 'Chat', icons: { icon: ICON } };

export default function RootLayout({ children }: { children: ReactNode }) {
  return (
    <html lang="en">
      <body>{children}</body>
    </html>
  );
}
