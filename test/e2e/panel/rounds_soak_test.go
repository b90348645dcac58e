//go:build lab && soak

package panel

// logins and peerings are how often the stories are told.
const logins, peerings = 60, 10
