package control

import "io/fs"

// NoFollow is nothing here.
const NoFollow = 0

// checkOwner leaves it to Windows, where the temporary directory is the user's own.
func checkOwner(fs.FileInfo) error { return nil }
