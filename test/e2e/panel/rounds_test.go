//go:build lab && !soak

package panel

// logins and peerings are how often the stories are told; make soak tells them as often as a promise needs.
const logins, peerings = 5, 1
