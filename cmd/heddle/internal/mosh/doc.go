// Package mosh starts the installed mosh's two programs: mosh-server on another machine by ssh, as the wrapper script
// of mosh does, and mosh-client here. Between the two there may be a relay, of which neither knows.
//
// Do not use this package to speak mosh's protocol: it only reads the line that says where mosh-server listens.
package mosh
