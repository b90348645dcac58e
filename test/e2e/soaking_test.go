//go:build lab && soak

package e2e

// soaking has stories that are also in the lab's ordinary tests repeat what needs luck to be seen.
const soaking = true
