"""Targets that publish a message to a broker: AMQP (RabbitMQ), NATS, Redis, MQTT. One file for each kind of broker.

`target` carries an attempt out, `message` says what is sent, and `pool` opens connections to addresses that the guard allows
and keeps them for the next attempt.
"""
