package docsite

import "net/http"

// The sizes of tokens, in bytes before base64.
const (
	sessionBytes = 90
	recentBytes  = 150 // for each page
	searchBytes  = 300 // for each page
	nextBytes    = 600
)

// mostRecent is how many pages the list of those read last has.
const mostRecent = 8

// recent is a page in the list of those read last. Mark is where the reader was, for the server.
type recent struct {
	Page  string `json:"page"`
	Title string `json:"title"`
	Mark  string `json:"mark"`
}

// found is a page in the index of the search. Ref tells the server what the reader chose.
type found struct {
	Page     string   `json:"page"`
	Title    string   `json:"title"`
	Headings []string `json:"headings"`
	Ref      string   `json:"ref"`
}

// api answers the scripts of the pages. It returns nil for what is no request of theirs. No answer depends on what was asked before.
func (s *Site) api(method, target string) any {
	switch method + " " + target {
	case "GET /api/session":
		return struct {
			User    *string `json:"user"`
			Session string  `json:"session"`
			Expires int     `json:"expires"` // seconds
		}{nil, s.token(sessionBytes), 1800}
	case "GET /api/recent":
		var all []recent
		for _, p := range s.pages[:min(mostRecent, len(s.pages))] {
			all = append(all, recent{p.path, p.title, s.token(recentBytes)})
		}
		return struct {
			Recent []recent `json:"recent"`
		}{all}
	case "GET /api/search":
		var all []found
		for _, p := range s.pages {
			all = append(all, found{p.path, p.title, p.headings, s.token(searchBytes)})
		}
		return struct {
			Pages []found `json:"pages"`
		}{all}
	case http.MethodPost + " /api/open", http.MethodPost + " /api/event":
		return struct {
			OK   bool   `json:"ok"`
			Next string `json:"next"`
		}{true, s.token(nextBytes)}
	}
	return nil
}
