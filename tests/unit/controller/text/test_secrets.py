"""Secrets in texts as programs print them are taken out, and nothing else is."""

from __future__ import annotations

import pytest

from controller.text.secrets import REMOVED, without_secrets

SECRET = "s3cr-et.W0rd"


@pytest.mark.parametrize(
    "text",
    [
        f"password={SECRET}",
        f"OVS_LBT_PASSWORD='{SECRET}'",
        f'options             : {{key=flow, psk="{SECRET}", remote_ip="192.0.2.1"}}',
        f"options: {{psk={SECRET}, remote_ip=192.0.2.1}}",
        f'["map",[["psk","{SECRET}"],["remote_ip","192.0.2.1"]]]',
        f'{{"auth_token": "{SECRET}"}}',
        f'{{"client-secret":"{SECRET} with words"}}',
        f"snmp-community: {SECRET}",
        f"api_key = {SECRET}",
        f"transport_url: rabbit://neutron:{SECRET}@192.0.2.9:5672/",
        f"Authorization: Bearer {SECRET}",
        f"a\n-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\nb",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
        f'["map",[["IKE_PSK", "{SECRET} \\" and on"]]]',
        f'"passphrase":"{SECRET}\\" and on"',
    ],
)
def test_a_secret_is_taken_out(text: str) -> None:
    cleaned = without_secrets(text)
    assert SECRET not in cleaned and "and on" not in cleaned and REMOVED in cleaned
    assert ("192.0.2.1" in text) == ("192.0.2.1" in cleaned), "what is beside it stays"


@pytest.mark.parametrize(
    "text",
    [
        "private_key=/etc/openvswitch/sc-privkey.pem",
        "OVS_LBT_PRIVATE_KEY=/etc/ovs-lbt/key.pem\nOVS_LBT_CA_CERT=/etc/ovs-lbt/ca.pem",
        'external_ids : {ovs-lbt-policy=load-based, iface-id="web-1"}',
        "cookie=0x6c62740000000000, table=7, n_packets=3, priority=10,reg4=0x1 actions=resubmit(,23)",
        "tcp:192.0.2.1:6640",
        '{"vm": "token-ring", "why": "keys of a bridge"}',
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
