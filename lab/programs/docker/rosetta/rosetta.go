// Package rosetta is what docker's client asks on a Mac: whether it runs translated. The module proxy has no go-rosetta.
package rosetta

// Enabled is false wherever there is no Rosetta.
func Enabled() bool { return false }
