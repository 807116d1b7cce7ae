package control

import "io/fs"

const noFollow = 0

// checkOwner leaves it to Windows, where the temporary directory is the user's own.
func checkOwner(fs.FileInfo) error { return nil }
