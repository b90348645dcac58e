package localapi

import (
	"context"
	"net/http"

	"kith.dev/core/api"
)

// route is one call of the local API. Either short or long is set.
type route struct {
	method, path string
	short        func(c *call) (any, error)
	long         func(c *call, report func(api.Progress)) (any, error)
}

// call is what a route gets to see of a request.
type call struct {
	Backend
	ctx  context.Context
	r    *http.Request
	w    http.ResponseWriter
	sent []byte // the request's body
}

// done is the answer of calls that have nothing to say.
type done struct{}

// routes is the whole local API, except for the streams (serveEvents, serveSnapshots).
var routes = []route{
	{method: "GET", path: api.PathVersion, short: func(c *call) (any, error) { return c.Version(c.ctx) }},
	{method: "GET", path: api.PathStatus, short: func(c *call) (any, error) { return c.Status(c.ctx) }},
	{method: "GET", path: api.PathKubeconfig, short: func(c *call) (any, error) {
		b, err := c.Kubeconfig(c.ctx)
		return file{"application/yaml", b}, err
	}},

	{method: "GET", path: api.PathPeers, short: func(c *call) (any, error) { return list(c.Peers(c.ctx)) }},
	{method: "GET", path: api.PathPeer, short: named("peer", func(c *call, peer string) (any, error) {
		return c.Peer(c.ctx, peer)
	})},
	{method: "POST", path: api.PathPeers, short: func(c *call) (any, error) {
		var in api.AddPeer
		if err := c.body(&in); err != nil {
			return nil, err
		}
		if err := checkName("address", in.Address); err != nil {
			return nil, err
		}
		return c.AddPeer(c.ctx, in.Address)
	}},
	{method: "DELETE", path: api.PathPeer, short: named("peer", func(c *call, peer string) (any, error) {
		return done{}, c.ForgetPeer(c.ctx, peer)
	})},
	{method: "POST", path: api.PathAsk, long: ask},
	{method: "POST", path: api.PathConfirm, short: named("peer", confirm)},
	{method: "POST", path: api.PathWithdraw, short: named("peer", func(c *call, peer string) (any, error) {
		return c.Withdraw(c.ctx, peer)
	})},
	{method: "POST", path: api.PathEnd, long: func(c *call, report func(api.Progress)) (any, error) {
		peer, err := c.name("peer")
		if err != nil {
			return nil, err
		}
		return c.Unpeer(c.ctx, peer, report)
	}},

	{method: "GET", path: api.PathRequests, short: func(c *call) (any, error) { return list(c.Requests(c.ctx)) }},
	{method: "GET", path: api.PathRequest, short: named("id", func(c *call, id string) (any, error) {
		return c.Request(c.ctx, id)
	})},
	{method: "POST", path: api.PathAccept, short: named("id", accept)},
	{method: "POST", path: api.PathDecline, short: named("id", func(c *call, id string) (any, error) {
		return c.Decline(c.ctx, id)
	})},

	{method: "GET", path: api.PathContracts, short: func(c *call) (any, error) { return list(c.Contracts(c.ctx)) }},
	{method: "GET", path: api.PathContract, short: named("contract", func(c *call, name string) (any, error) {
		return c.Contract(c.ctx, name)
	})},
	{method: "POST", path: api.PathVerify, short: func(c *call) (any, error) {
		var in api.Contract
		if err := c.body(&in); err != nil {
			return nil, err
		}
		return c.VerifyContract(c.ctx, in)
	}},

	{method: "GET", path: api.PathPolicies, short: func(c *call) (any, error) { return list(c.Policies(c.ctx)) }},
	{method: "PATCH", path: api.PathPolicy, short: named("policy", setPolicy)},

	{method: "GET", path: api.PathOffloads, short: func(c *call) (any, error) { return list(c.Offloads(c.ctx)) }},
	{method: "PUT", path: api.PathOffload, long: offload},
	{method: "DELETE", path: api.PathOffload, long: func(c *call, report func(api.Progress)) (any, error) {
		namespace, err := c.name("namespace")
		if err != nil {
			return nil, err
		}
		options, err := api.ParseUnoffloadOptions(c.r.URL.Query())
		if err != nil {
			return nil, err
		}
		return done{}, c.Unoffload(c.ctx, namespace, options, report)
	}},
	{method: "GET", path: api.PathGuests, short: func(c *call) (any, error) { return list(c.Guests(c.ctx)) }},
	{method: "GET", path: api.PathDoctor, long: func(c *call, report func(api.Progress)) (any, error) {
		peer := c.r.URL.Query().Get("peer")
		if peer != "" {
			if err := checkName("peer", peer); err != nil {
				return nil, err
			}
		}
		return list(c.Doctor(c.ctx, peer, report))
	}},
}

func ask(c *call, report func(api.Progress)) (any, error) {
	peer, err := c.name("peer")
	if err != nil {
		return nil, err
	}
	var in api.PeerAsk
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := api.CheckAsked("resources", in.Resources); err != nil {
		return nil, err
	}
	if in.Code, err = api.ParseCode("code", in.Code); err != nil {
		return nil, err
	}
	return c.Ask(c.ctx, peer, in, report)
}

func accept(c *call, id string) (any, error) {
	var in api.Accept
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := api.CheckResources("granted", in.Granted, false); err != nil {
		return nil, err
	}
	return c.Accept(c.ctx, id, in.Granted)
}

func confirm(c *call, peer string) (any, error) {
	var in api.PeerConfirm
	err := c.body(&in)
	if err == nil {
		in.Code, err = api.ParseCode("code", in.Code)
	}
	if err != nil {
		return nil, err
	}
	return c.Confirm(c.ctx, peer, in)
}

func setPolicy(c *call, name string) (any, error) {
	var in api.PolicyChange
	if err := c.body(&in); err != nil {
		return nil, err
	}
	// The change alone must be well formed; what it does to the policy there is, is the backend's to check.
	if err := in.Apply(api.Policy{}).Check(); err != nil {
		return nil, err
	}
	return c.SetPolicy(c.ctx, name, in)
}

func offload(c *call, report func(api.Progress)) (any, error) {
	namespace, err := c.name("namespace")
	if err != nil {
		return nil, err
	}
	var in api.OffloadOptions
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := in.Check(); err != nil {
		return nil, err
	}
	return c.Offload(c.ctx, namespace, in, report)
}

// named is a route about the thing named in the path.
func named(key string, f func(c *call, name string) (any, error)) func(*call) (any, error) {
	return func(c *call) (any, error) {
		name, err := c.name(key)
		if err != nil {
			return nil, err
		}
		return f(c, name)
	}
}

// list makes nil the empty list, for JSON.
func list[T any](items []T, err error) (any, error) { return api.List[T](items), err }
