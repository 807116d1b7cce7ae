package site

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

// maxReferences is how many references of one document are read.
const maxReferences = 4096

// loadsOf returns what a browser loads with a document, in its order.
func loadsOf(document []byte) []string {
	return references(document, func(tag string, attributes map[string]string) string {
		switch tag {
		case "script", "img", "source", "video", "audio", "iframe":
			return attributes["src"]
		case "link":
			if slices.Contains([]string{"stylesheet", "icon", "preload", "modulepreload", "shortcut icon"}, strings.ToLower(attributes["rel"])) {
				return attributes["href"]
			}
		}
		return ""
	})
}

// linksOf returns where a document leads.
func linksOf(document []byte) []string {
	return references(document, func(tag string, attributes map[string]string) string {
		if tag == "a" {
			return attributes["href"]
		}
		return ""
	})
}

// pinned returns what a document loads only with the hash that it states (subresource integrity).
func pinned(document []byte) []string {
	return references(document, func(tag string, attributes map[string]string) string {
		if attributes["integrity"] == "" {
			return ""
		}
		return attributes["src"] + attributes["href"]
	})
}

// references returns the different references that pick finds in a document.
func references(document []byte, pick func(tag string, attributes map[string]string) string) (all []string) {
	seen := map[string]bool{}
	for z := html.NewTokenizer(bytes.NewReader(document)); len(all) < maxReferences; {
		switch z.Next() {
		case html.ErrorToken:
			return all
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			attributes := map[string]string{}
			for _, a := range token.Attr {
				attributes[a.Key] = a.Val
			}
			if found := pick(token.Data, attributes); found != "" && !seen[found] {
				seen[found] = true
				all = append(all, found)
			}
		}
	}
	return all
}
