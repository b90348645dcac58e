//go:build lab && !soak

package e2e

// soaking is for stories that repeat what needs luck to be seen.
const soaking = false
