package defence

import (
	"html"
	"net/http"
	"net/url"
)

// passwordPage says that browsers ask for no password for what a Service Worker fetches.
const passwordPage = `<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Password</title>
<p>This site asks for a password by HTTP authentication. A browser cannot ask you for it while the sizes of what you load here are hidden:
<a href="`

const passwordEnd = `">go on without that</a>.</p>
</html>
`

// refusePassword takes the place of an answer that asks for a password.
func (r *recorder) refusePassword(to string) {
	page := passwordPage + html.EscapeString(plainPath+"?to="+url.QueryEscape(to)) + passwordEnd
	r.d.room.giveBack(r.l.visitor, len(r.body))
	r.body = nil
	r.header = http.Header{"Content-Type": {"text/html; charset=utf-8"}, "Cache-Control": {"no-store"}, "Content-Security-Policy": {"default-src 'none'; base-uri 'none'; form-action 'none'"}}
	_, _ = r.Write([]byte(page)) // it notes if there is no room
}
