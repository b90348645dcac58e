//go:build !race

package wiretest

const raced = false
